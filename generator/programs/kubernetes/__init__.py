"""Kubernetes: PyTorchJob, TrainJob and JobSet, written and checked."""
