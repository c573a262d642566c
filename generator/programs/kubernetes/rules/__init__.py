"""Rules on Kubernetes jobs: PyTorchJob, TrainJob, JobSet."""
