-- PURPOSE  Set what a limit is from now on, in place of what its tasks declare, or take that back;
--          and let out what it has room for now. A caller goes on until nothing is left: up to 500
--          tasks a call. Safe to repeat.
-- KEYS     ready suspects info wake meta limits slots rates releases parked queues
-- ARGV     limit id, definition or '-' (as declared), '' or where the call before left off
-- RETURNS  {now ms, 1 or 0 if the pool knows no such limit, '' or where to go on}
-- include: now
-- include: limiting
-- include: limits
-- include: wake
local ready, suspects, info, wake, meta, limits, slots, rates, releases, parked,
  queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local id, definition, after = ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()

local declared, _, name = string.match(redis.call('HGET', limits, id) or '', '^(%S+) (%S+) (%S+)$')
if not declared then return {now, 0, ''} end
redis.call('HSET', limits, id, declared .. ' ' .. definition .. ' ' .. name)
local _, further = let_all_out(limiting, id, now, after ~= '' and after or nil)
-- Somebody has to look: there is work, or the next token comes at another time.
wake_one(wake, meta)
return {now, 1, further or ''}
