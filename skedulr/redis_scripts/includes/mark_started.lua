-- include: claim_text
-- include: whole
-- Note in their claims that these tasks run now: a death is judged by it. The pairs id, token
-- stand in `list` from position `first` on.
local function mark_started(claims, list, first, now)
  local ids, marked = {}, {}
  for i = first, #list, 2 do ids[#ids + 1] = list[i] end
  if #ids == 0 then return end
  for i, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do
    if holds(text, list[first + 2 * i - 1]) then
      local token, at = read_claim(text)
      marked[#marked + 1] = ids[i]
      marked[#marked + 1] = token .. ' ' .. at .. ' ' .. whole(now)
    end
  end
  if #marked > 0 then redis.call('HSET', claims, unpack(marked)) end
end
