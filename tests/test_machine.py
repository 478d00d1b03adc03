"""What measured times depend on."""

from __future__ import annotations

import torch

from paredown.system.machine import FLAGS, cpu, machine, versions


def test_facts_of_this_machine() -> None:
    found = machine(torch.device("cpu"), ["numpy", "no-such-package"])
    assert found["device"] == found["cpu"] == cpu()["cpu"] and found["gpu"] is None
    assert found["threads"] == torch.get_num_threads() and found["torch"] == torch.__version__
    assert "numpy" in found and "no-such-package" not in found
    assert set(found["flags"]) <= set(FLAGS.values())


def test_versions_of_what_is_there() -> None:
    assert list(versions(["no-such-package", "transformers"])) == ["transformers"]
