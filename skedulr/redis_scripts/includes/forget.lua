-- include rarely: limits
-- include rarely: locks
-- include rarely: tell_waiting
-- Drop what is kept beside the bodies of tasks that are over: header, lock, slots, cancel flag,
-- progress; and tell who waits. `let_go(mode, i)` says which kinds of locks go. `k` names the keys
-- info, unique, cancels, progress, watch and limiting; mostly none of them exists, which one call
-- tells (a task that holds a slot has a header).
local function forget(k, ids, let_go)
  if redis.call('EXISTS', k.info, k.cancels, k.progress, k.watch) == 0 then return end
  if redis.call('EXISTS', k.info) == 1 then
    if redis.call('EXISTS', k.unique) == 1 then
      release_locks(k.unique, ids, redis.call('HMGET', k.info, unpack(ids)), let_go)
    end
    free_slots(k.limiting, ids, true)
    redis.call('HDEL', k.info, unpack(ids))
  end
  if redis.call('EXISTS', k.cancels) == 1 then redis.call('SREM', k.cancels, unpack(ids)) end
  if redis.call('EXISTS', k.progress) == 1 then redis.call('HDEL', k.progress, unpack(ids)) end
  tell_waiting(k.watch, ids)
end
