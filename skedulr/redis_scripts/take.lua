-- PURPOSE  Take items of the outbox to deliver them, and remove those that were delivered. A taken
--          item comes again after a while, so that the next deliverer goes on where one died.
-- KEYS     outbox edges tasks
-- ARGV     most items (at most 500), how far ahead of their time, ms, for how long they are taken,
--          ms; then pairs item, score: delivered, and removed where the score is still this one
-- RETURNS  {now ms, score, item, what, item, what, ...}: an item is "<letter> <task>": 'a' to be
--          tied to its parents, or 't' again (what: its body); 's' succeeded, or 'd', 'c', 'e', 'k', 'm' as in
--          end_tasks, 'p' removed, 'r' resubmitted, 'R' the same, a while ago (what: the first page
--          of its edges); '' if gone
-- include: now
-- include: whole
-- include: drop_edges
local outbox, edges, tasks = unpack(KEYS)
local SLACK, HELD = 60000, 2 ^ 52
local now = now_ms()

local function remove_delivered()
  local items, done, purged, again = {}, {}, {}, {}
  for i = 4, #ARGV, 2 do items[#items + 1] = ARGV[i] end
  if #items == 0 then return end
  for i, score in ipairs(redis.call('ZMSCORE', outbox, unpack(items))) do
    -- Where it is another one, something happened to the task again.
    if score and tonumber(score) == tonumber(ARGV[2 * i + 3]) then
      done[#done + 1] = items[i]
      local letter, id = string.sub(items[i], 1, 1), string.sub(items[i], 3)
      if letter == 'p' then purged[#purged + 1] = id end
      -- Whoever had taken the end before it was taken back may have told of it only now, and died.
      if letter == 'r' then
        again[#again + 1], again[#again + 2] = whole(now + tonumber(ARGV[3])), 'R ' .. id
      end
    end
  end
  if #done > 0 then redis.call('ZREM', outbox, unpack(done)) end
  if #again > 0 then redis.call('ZADD', outbox, unpack(again)) end
  drop_edges(edges, purged)
end

-- What is due; else what the clock put further away than anything is put, before it was set back.
-- From HELD on it is none of that: an import put it there that is not through yet (restore.lua).
local function next_items()
  local due = redis.call('ZRANGEBYSCORE', outbox, '-inf', whole(now + tonumber(ARGV[2])), 'LIMIT', 0,
                         tonumber(ARGV[1]))
  if #due > 0 then return due end
  return redis.call('ZRANGEBYSCORE', outbox, whole(now + tonumber(ARGV[3]) + SLACK),
                    '(' .. whole(HELD), 'LIMIT', 0, tonumber(ARGV[1]))
end

remove_delivered()
-- Half a millisecond: no score that anything else writes.
local score = whole(now + tonumber(ARGV[3])) .. '.5'
local taken = next_items()
local reply, moved = {now, score}, {}
for i, item in ipairs(taken) do
  local id = string.sub(item, 3)
  local letter = string.sub(item, 1, 1)
  local held = (letter == 'a' or letter == 't') and redis.call('HGET', tasks, id)
    or redis.call('HGET', edges, id)
  reply[#reply + 1], reply[#reply + 2] = item, held or ''
  moved[2 * i - 1], moved[2 * i] = score, item
end
if #moved > 0 then redis.call('ZADD', outbox, unpack(moved)) end
return reply
