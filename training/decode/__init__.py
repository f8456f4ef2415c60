"""Translation with trained models: decoder steps, searches, batches of texts."""
