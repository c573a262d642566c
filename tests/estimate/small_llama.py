"""A Llama that is small enough to be trained by a real engine on two cores, by Hugging Face's
keys.
"""

SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 8,
    "vocab_size": 1024,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
