// What a page gains with a script: it is live, has keys, and shows what is selected. Without one it reads and acts.
import { charts } from "./charts.js";
import { keys } from "./keys.js";
import { live } from "./live.js";
import { pick } from "./pick.js";
import { tick } from "./tick.js";
import { tools } from "./tools.js";
import { views } from "./views.js";

tools();
charts();
tick();
views();
const selection = pick();
live(selection);
keys(selection);
