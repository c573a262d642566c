"""Requirements on the files of a submission: configs, launch scripts, jobs for a cluster's service."""
