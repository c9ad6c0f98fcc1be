"""The small trained AsyncT: its problems, tokenizer, training and measurements."""
