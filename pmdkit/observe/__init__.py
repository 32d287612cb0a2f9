"""Room: what a run leaves behind and shows while it runs. The mathematics is elsewhere."""
