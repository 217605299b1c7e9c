-- The keys of limits by name; see limits.lua.
local function limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases, parked,
                        queues, turns)
  return {ready = ready, suspects = suspects, info = info, wake = wake, meta = meta,
          limits = limits, slots = slots, rates = rates, releases = releases, parked = parked,
          queues = queues, turns = turns}
end
