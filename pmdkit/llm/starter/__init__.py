"""The starter: a tiny model, its tokenizer and its teacher, so that this tier runs with no download and no GPU."""
