"""Beyond one machine: the same predictions, made by workers that Ray places wherever there are CPUs or GPUs.

Ray is an extra, `paredown[ray]`, and is imported when it is first needed.
"""

from paredown.cluster.prediction import predict
from paredown.cluster.session import joined
from paredown.cluster.shards import Shard, answered
from paredown.cluster.workers import PredictorSettings, Workers

__all__ = ["PredictorSettings", "Shard", "Workers", "answered", "joined", "predict"]
