-- Forget whom `ids` have for children. The first page of a parent's edges says how many follow.
local function drop_edges(edges, ids)
  if #ids == 0 or redis.call('EXISTS', edges) == 0 then return end
  for i, first in ipairs(redis.call('HMGET', edges, unpack(ids))) do
    if first then
      local fields = {ids[i]}
      for n = 1, tonumber(string.match(first, '^%d+')) do fields[n + 1] = ids[i] .. ',' .. n end
      redis.call('HDEL', edges, unpack(fields))
    end
  end
end
