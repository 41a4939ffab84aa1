{
const box=document.querySelector("label"),input=box.firstElementChild,status=document.getElementById("count"),all=status.textContent
const rows=Array.from(document.querySelectorAll("tbody tr"),row=>[row,row.cells[0].textContent.toLowerCase()])
const filter=()=>{
const part=input.value.toLowerCase()
let shown=0
for(const[row,name]of rows)if(!(row.hidden=!name.includes(part)))shown++
status.textContent=part?`${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} entries match`:all
}
input.oninput=filter
box.hidden=false
if(input.value)filter()
}
