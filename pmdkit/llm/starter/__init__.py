"""The starter: a tiny model, its tokenizer and its teacher; with it this tier needs no download and no GPU."""
