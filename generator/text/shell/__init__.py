"""Shell scripts, read as bash does: words, variables, commands, here-documents."""
