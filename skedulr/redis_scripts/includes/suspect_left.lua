-- include: wake
-- An owner holds one suspect at a time. Where `suspect` (or nil) is among the `ids` it is done
-- with, it may take the next one at once.
local function suspect_left(own, suspect, ids, suspects, wake, meta)
  if not suspect then return end
  for _, id in ipairs(ids) do
    if id == suspect then
      redis.call('HDEL', own, 'suspect')
      if redis.call('EXISTS', suspects) == 1 then wake_one(wake, meta) end
      return
    end
  end
end
