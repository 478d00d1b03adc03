"""What we know of Hugging Face encoders: how to load, walk, watch, lengthen and prune them."""
