"""Git: commits, branches and worktrees of the checkout that holds the suites."""
