"""Word lists, written for this project. One file for each field of life."""
