"""Where a backward failed or gave NaN, under torch.autograd.anomaly_mode's names."""
from autograd_gpu.engine.anomaly_mode import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
