"""The command line: a module for every verb, put together in `app`, and what verbs share.

Nothing is imported here: the pytest plugin shares some of it, and needs no verb.
"""
