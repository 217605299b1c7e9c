-- include: whole
-- Unique keys. `unique` holds digest -> "<uid> <expiry ms or 0>". A lock of mode 'd' (until done)
-- or 's' (until start) has expiry 0 and counts only while its holder's body is in tasks; one of
-- mode 'w' (a window) counts until its expiry, whatever became of its holder.

-- Who holds which of `digests` now: digest -> uid, only locks that count.
local function living_locks(unique, tasks, digests, now)
  local held = {}
  if #digests == 0 then return held end
  for i, text in ipairs(redis.call('HMGET', unique, unpack(digests))) do
    if text then
      local uid, expiry = string.match(text, '^(%S+) (%d+)$')
      expiry = tonumber(expiry)
      if expiry and (expiry > now or
         (expiry == 0 and redis.call('HEXISTS', tasks, uid) == 1)) then
        held[digests[i]] = uid
      end
    end
  end
  return held
end

-- Write the locks of tasks that were just stored; `options` as read_options gives them.
local function take_locks(unique, windows, ids, options, now)
  local locks, ends = {}, {}
  for i, id in ipairs(ids) do
    local o = options[i]
    if o.digest then
      local expiry = o.mode == 'w' and whole(now + o.window) or '0'
      locks[#locks + 1], locks[#locks + 2] = o.digest, id .. ' ' .. expiry
      if o.mode == 'w' then ends[#ends + 1], ends[#ends + 2] = expiry, o.digest end
    end
  end
  if #locks > 0 then redis.call('HSET', unique, unpack(locks)) end
  if #ends > 0 then redis.call('ZADD', windows, unpack(ends)) end
end

-- Give up the locks that `ids` hold by their headers, where `let_go(mode, i)` says so. One that
-- another task holds by now stays.
local function release_locks(unique, ids, headers, let_go)
  local digests, owners, free = {}, {}, {}
  for i, id in ipairs(ids) do
    if headers[i] then
      local mode, digest = string.match(headers[i], ' ([dsw]):(%S+)')
      if mode and let_go(mode, i) then digests[#digests + 1], owners[#owners + 1] = digest, id end
    end
  end
  if #digests == 0 then return end
  for i, text in ipairs(redis.call('HMGET', unique, unpack(digests))) do
    if text and string.match(text, '^%S+') == owners[i] then free[#free + 1] = digests[i] end
  end
  if #free > 0 then redis.call('HDEL', unique, unpack(free)) end
end
