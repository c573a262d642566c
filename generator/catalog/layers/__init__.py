"""Kinds of layers: a mixer and a feed-forward each, a module a kind, which says everything of
itself.

`mixer` and `feed_forward` have what every kind says, `stack` has layers in their order. A kind
knows no other kind, and nothing outside of this folder: what depends on a job or a layout comes to
it as plain numbers or numpy columns.
"""
