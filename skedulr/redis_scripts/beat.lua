-- PURPOSE  A node's beat: keep its record, take or renew the lead of the namespace, and say what
--          has changed there, so that a node that has nothing to do asks for nothing else.
-- KEYS     leader nodes pools sizes tuning watched listening
-- ARGV     node; how long the lead is taken for, ms; '1' if the node would lead; the highest term it
--          knows of; for how long its tuned pools are to be watched, ms, 0: it has none; its record,
--          '' where it is as it was; then the pools it serves
-- RETURNS  {now ms, term of whoever leads, 0: nobody, ms until the lead is free, that node, how
--          often sizes changed, how often the tuned ones did, pools are to be watched: 1 or 0,
--          somebody listens: 1 or 0}; and to who leads where pools are to be watched: all nodes'
--          records, and the pools whose sizes an operator set, if it is no more than 500
-- include: now
-- include: whole
local leader, nodes, pools, sizes, tuning, watched, listening = unpack(KEYS)
local MOST_SEEN = 500
local now = now_ms()
local node, lasts, willing, known = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', leader, '')

local held = redis.call('HMGET', leader, 'node', 'term', 'until', 'left')
local holder, term, left = held[1] or '', tonumber(held[2] or 0), tonumber(held[3] or 0) - now
-- Longer than anybody takes it for: the clock was set back, and would keep it for as long.
if left < 0 or left > 2 * lasts then left = 0 end

-- Why the lead was free, for people: a word, and the node that had it.
local function how_taken()
  if holder ~= '' then return 'silent ' .. holder end
  if held[4] then return 'resigned ' .. held[4] end
  return known > term and 'forgotten' or 'first'
end

if willing and (left == 0 or holder == node) then
  -- A term is one node's; it only grows, also where Redis forgot the last one.
  if holder ~= node then
    redis.call('HSET', leader, 'since', whole(now), 'how', how_taken())
    redis.call('HDEL', leader, 'left')
    term = math.max(term, known) + 1
  end
  holder, left = node, lasts
  redis.call('HSET', leader, 'node', node, 'term', whole(term), 'until', whole(now + lasts))
end
if left == 0 then holder, term = '', 0 end

if tonumber(ARGV[5]) > 0 then redis.call('SET', watched, '1', 'PX', ARGV[5]) end
if ARGV[6] ~= '' then
  redis.call('HSET', nodes, node, ARGV[6])
  -- A flush takes the list of pools as well as the record.
  for i = 7, #ARGV do redis.call('HSETNX', pools, ARGV[i], whole(now)) end
end
local reply = {now, term, left, holder, tonumber(redis.call('HGET', sizes, '#') or 0),
               tonumber(redis.call('HGET', tuning, '#') or 0), redis.call('EXISTS', watched),
               redis.call('EXISTS', listening)}
-- Every look of a leader begins with these: asked for apart, they are most of what it costs.
if holder == node and reply[7] == 1
   and redis.call('HLEN', nodes) + redis.call('HLEN', sizes) <= MOST_SEEN then
  reply[9], reply[10] = redis.call('HVALS', nodes), redis.call('HKEYS', sizes)
end
return reply
