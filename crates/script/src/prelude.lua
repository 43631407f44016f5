-- Runs once in each new interpreter, before any script: what has to be Lua, because errors of Lua pass through it untouched.
-- `N` are functions of ours; what is returned goes into the tables that scripts see.
local N = ...
local raw_pcall, raw_xpcall, raw_resume = pcall, xpcall, coroutine.resume
local setmetatable, type, next, pairs = setmetatable, type, next, pairs
local visible, stopped, next_match, out_of_memory = N.visible, N.stopped, N.next_match, N.out_of_memory

-- Lua's own error. On a worker the run ends here, because a script on a helper thread may have more memory.
local function checked(ok, ...)
  if not ok and (...) == 'not enough memory' then out_of_memory() end
  return ok, ...
end

-- The results of pcall. As in redis-server, a table whose `err` is a text is replaced by this text.
local function caught(ok, ...)
  if ok then return true, ... end
  local e = ...
  if type(e) == 'userdata' then e = visible(e) end
  if type(e) == 'table' then
    local kind = type(e.err)
    if kind == 'string' or kind == 'number' then e = e.err end
  end
  return false, e
end

local function pcall(...) return caught(checked(raw_pcall(...))) end

-- While a run is stopped no handler of the script's may begin: inside it no hook would run.
local function xpcall(f, handler)
  return checked(raw_xpcall(f, function(e)
    if stopped() then return e end
    return handler(visible(e))
  end))
end

local function resumed(ok, ...)
  if ok then return true, ... end
  return false, visible((...))
end

local function resume(...) return resumed(checked(raw_resume(...))) end

-- A table that scripts can read and not change: the table that they see is empty, and what is in it lies in another one.
local shield = setmetatable({}, { __newindex = N.readonly, __metatable = false })
local proxies = { shield }
N.protected[shield] = {}

local function protect(real)
  local proxy = setmetatable({}, { __index = real, __newindex = N.readonly, __metatable = shield })
  proxies[#proxies + 1] = proxy
  N.protected[proxy] = real
  return proxy
end

-- `table.insert` and its like write past metatables: what a script has left in a proxy goes before the next one runs.
local function sweep()
  for i = 1, #proxies do
    local proxy = proxies[i]
    if next(proxy) ~= nil then
      for key in pairs(proxy) do rawset(proxy, key, nil) end
    end
  end
end

-- The iterator of `string.gmatch`.
local function matches(subject, pattern)
  local at = 0
  local function captures(next_at, ...)
    at = next_at
    return ...
  end
  return function() return captures(next_match(subject, pattern, at)) end
end

-- Runs the chunk `f`: true and its first result, or false and the error as a table that `handler` makes.
local function load(f, handler) return raw_xpcall(f, handler) end

return {
  pcall = pcall, xpcall = xpcall, resume = resume, protect = protect, shield = shield, sweep = sweep, load = load,
  matches = matches,
}
