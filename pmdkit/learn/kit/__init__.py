"""Room: what an instructor needs besides the lessons, built from them. Nothing here is edited by hand afterwards."""
