-- include: tell_children
-- Tasks that had ended are at work, or wait, again: what they came to before is not to be told any
-- more, and those that were skipped for it wait again. `k` names the keys edges and outbox.
local function retell(k, ids, now)
  if redis.call('EXISTS', k.edges) == 0 then return end
  local stale, letters = {}, {}
  for n, id in ipairs(ids) do
    letters[n] = 'r'
    for letter in string.gmatch('s d c e k', '%a') do stale[#stale + 1] = letter .. ' ' .. id end
  end
  redis.call('ZREM', k.outbox, unpack(stale))
  tell_children(k, ids, letters, now)
end
