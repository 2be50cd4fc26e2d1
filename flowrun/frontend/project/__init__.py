"""Projects: folders of pipelines with one `flowrun.yaml`, which says what they share."""
