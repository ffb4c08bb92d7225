"""What a verb does, without printing: joins the rooms for `cli` and `integrations`."""
