"""Knowledge edits of language models as patches, with a score that says beforehand which are hard."""
