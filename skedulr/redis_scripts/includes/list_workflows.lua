-- List workflows that have begun, of which a pool keeps its newest thousand: time in ms and id, one
-- behind the other.
local LISTED = 1000
local function list_workflows(workflows, begun)
  if #begun == 0 then return end
  redis.call('ZADD', workflows, unpack(begun))
  redis.call('ZREMRANGEBYRANK', workflows, 0, -1 - LISTED)
end
