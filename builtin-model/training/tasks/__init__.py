"""The tasks. Each module has `make(source) -> Sample` and, where an answer can be judged, `judge(sample, text) -> bool`."""
