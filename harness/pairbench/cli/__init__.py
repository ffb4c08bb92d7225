"""The command line: parse, call a workflow or a feature, print. `app` puts the verbs together, and `options` declares what they share."""
