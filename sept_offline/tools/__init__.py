"""What stands around the core: each tool imports the core, and no tool another but `report`."""
