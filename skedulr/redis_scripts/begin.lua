-- PURPOSE  What becomes of a workflow whose steps are held back by a task that stands for all of it:
--          'begin': it ends, which frees the steps that wait for no other, and it is one of the
--          pool's newest workflows, of which a thousand are listed; 'stop': it can not begin
--          any more, and its steps may be removed; 'drop': it is forgotten. Safe to repeat.
-- KEYS     waiting held edges outbox tasks info records done dead cancels watch stats unique
--          progress ready suspects wake meta limits slots rates releases parked queues workflows
-- ARGV     'begin', 'stop' or 'drop'; id; journal entry
-- RETURNS  {now ms, letter}: 'b' done now, 'e' it had begun, 'n' it had not and can not
-- include: now
-- include: whole
-- include: drop_edges
-- include: end_tasks
-- include: limiting
-- include: list_workflows
local waiting, held, edges, outbox, tasks, info, records, done, dead, cancels, watch, stats, unique,
  progress, ready, suspects, wake, meta, limits, slots, rates, releases, parked, queues,
  workflows = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local what, id, entry = ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()

if what == 'drop' and redis.call('HEXISTS', waiting, id) == 0
   and redis.call('HDEL', tasks, id) == 1 then
  drop_edges(edges, {id})
  redis.call('ZREM', outbox, 'a ' .. id)
  return {now, 'b'}
end
if what == 'drop' or redis.call('HDEL', waiting, id) == 0 then
  return {now, redis.call('HEXISTS', records, id) == 1 and 'e' or 'n'}
end
redis.call('ZREM', held, id)
if what == 'begin' then
  redis.call('ZREM', outbox, 'a ' .. id)
  end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            {id}, {'w'}, {entry}, now)
  list_workflows(workflows, {whole(now), id})
end
return {now, 'b'}
