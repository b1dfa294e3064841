-- Hot loops that become traces, side exits, errors that are caught, coroutines, an exit status.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local sum = 0
for i = 1, 1e6 do sum = sum + i % 7 end
print(sum, fib(20))
local words = {}
for i = 1, 1000 do words[i] = tostring(i * 17 % 101) end
table.sort(words)
print(words[1], words[1000])
local caught = 0
for i = 1, 500 do
  local ok = pcall(function() local t = i % 2 == 0 and {} or nil; return t.x end)
  if not ok then caught = caught + 1 end
end
local step = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end)
for i = 1, 1000 do caught = caught + step() end
print(caught)
os.exit(7)
