-- PURPOSE  Ask for word when a task ends, or get its record if it has: one step, so no end is missed.
-- KEYS     tasks records watch
-- ARGV     id, channel
-- RETURNS  the record; 1 where the channel will be told; false for an id nobody knows
local tasks, records, watch = unpack(KEYS)
local id, channel = ARGV[1], ARGV[2]

local record = redis.call('HGET', records, id)
if record then return record end
if redis.call('HEXISTS', tasks, id) == 0 then return false end
local known = redis.call('HGET', watch, id)
if known and string.find(' ' .. known .. ' ', ' ' .. channel .. ' ', 1, true) then return 1 end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', watch, '')
redis.call('HSET', watch, id, known and known .. ' ' .. channel or channel)
return 1
