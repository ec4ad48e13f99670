"""The mutable world: storages, the journal, re-rolling, and the flush that turns them into programs."""
