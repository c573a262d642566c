"""Layers of a model: each has a mixer (attention and its kin) and a feed-forward.

Each kind of mixer and of feed-forward is one module with all that is known of it: parameters,
products, memory, and how it may be cut. `mixer` and `feed_forward` hold what every kind has to say,
`stack` the layers in their order.

A kind imports no other kind, and nothing outside of this folder. What depends on a job or a layout
is passed to it, as numbers or numpy columns.
"""
