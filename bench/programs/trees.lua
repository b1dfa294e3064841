-- Binary trees: allocation and garbage collection.
local function bottom_up(depth)
  if depth == 0 then return {} end
  return { bottom_up(depth - 1), bottom_up(depth - 1) }
end

local function check(tree)
  if tree[1] then return 1 + check(tree[1]) + check(tree[2]) end
  return 1
end

local max_depth = tonumber(arg[1])
local long_lived = bottom_up(max_depth)
for depth = 4, max_depth, 2 do
  local rounds = 1 << (max_depth - depth + 4)
  local sum = 0
  for _ = 1, rounds do sum = sum + check(bottom_up(depth)) end
  print(rounds, "trees of depth", depth, "check", sum)
end
print("long lived", check(long_lived))
