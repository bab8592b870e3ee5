"""Tools around the core: each imports the core, and none but `report` imports another tool."""
