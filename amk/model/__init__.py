"""Reading a model: config -> ModelGraph, weights -> Checkpoint, tokenizer. No torch; weights stay on disk."""
