"""Transformers' Trainer and accelerate: their arguments and configs, written and checked."""
