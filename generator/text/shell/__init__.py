"""Shell scripts, read as bash does: words, variables, commands, here-documents.

`tokens` cuts the text, `reader` goes through the tokens, `commands` notes each command, `expand`
expands its words, and `state` has the variables.

Why not a parser: tree-sitter-bash 0.25 would replace `tokens` alone; expansion, places of values
and variables would stay ours. On 3,576 scripts it takes 0.54 s to parse and walk, this reader 0.34
s. It reports an error in 19 of 194 complete texts of the tests, such as every `${{inputs.data}}` of
AzureML.
"""
