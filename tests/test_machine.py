"""What measured times depend on."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest
import torch

from paredown.system import freed
from paredown.system.freed import keep_freed
from paredown.system.machine import FLAGS, cpu, machine, versions


def test_facts_of_this_machine() -> None:
    found = machine(torch.device("cpu"), ["numpy", "no-such-package"])
    assert found["device"] == found["cpu"] == cpu()["cpu"] and found["gpu"] is None
    assert found["threads"] == torch.get_num_threads() and found["torch"] == torch.__version__
    assert "numpy" in found and "no-such-package" not in found
    assert set(found["flags"]) <= set(FLAGS.values())


def test_versions_of_what_is_there() -> None:
    assert list(versions(["no-such-package", "transformers"])) == ["transformers"]


def test_freed_memory_stays_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep_freed() == (sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt"))
    monkeypatch.setattr(freed, "ctypes", SimpleNamespace(CDLL=lambda name: SimpleNamespace()))
    assert not keep_freed.__wrapped__()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed.__wrapped__()
