"""One file a channel; a file that is put here is a channel, by its name."""
