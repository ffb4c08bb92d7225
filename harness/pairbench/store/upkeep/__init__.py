"""What a store asks for after years: runs merged into fewer files, damage named, samples that are old removed."""
