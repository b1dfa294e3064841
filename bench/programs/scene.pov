// Spheres over a chequered floor: reflection, refraction, a fog and a turbulent texture.
#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 6 }
camera { location <0, 3, -8> look_at <0, 1, 0> }
light_source { <6, 10, -6> color rgb 1 }
light_source { <-8, 6, -4> color rgb <0.4, 0.4, 0.5> }
background { color rgb <0.5, 0.6, 0.8> }
plane { y, 0 pigment { checker color rgb 0.9 color rgb 0.2 } finish { reflection 0.2 } }
#declare S = seed(7);
#declare I = 0;
#while (I < 24)
  sphere { <rand(S) * 8 - 4, rand(S) * 2 + 0.4, rand(S) * 6 - 2>, 0.4 + rand(S) * 0.4
    pigment { marble turbulence 0.8 color_map { [0 color rgb <rand(S), rand(S), 1>] [1 color rgb 1] } }
    finish { phong 0.8 reflection 0.15 }
  }
  #declare I = I + 1;
#end
sphere { <0, 1.4, -2>, 0.9 pigment { color rgbt <1, 1, 1, 0.9> } interior { ior 1.4 } finish { phong 1 } }
torus { 1.5, 0.2 rotate x * 60 translate <0, 2.5, 2> pigment { color rgb <0.9, 0.7, 0.2> } finish { reflection 0.4 } }
