"""The intermediate representation: nodes, ops, rules, levels, text form and interpreter."""
